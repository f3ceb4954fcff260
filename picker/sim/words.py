"""Plain words, from which the demo tokenizer is trained and the trace's prompts are made."""

from __future__ import annotations

WORDS: tuple[str, ...] = tuple(
    """
    able about above accept account across action active actual adapter address advance after again against
    agent ago agree ahead air allow almost alone along already also although always among amount and animal
    announce another answer any appear apple apply area argue arm around arrive art ask attempt author
    autumn away back bad bag balance ball bank base basket batch bear beautiful because become bed before
    begin behind believe below bench beside best better between beyond big bird black block blood blue board
    boat body book border both bottle bottom box branch bread break bridge bright bring broad broken brother
    brown build burn busy butter button buy cache call calm camera camp can capital car card care carry case
    castle cat catch cause center central certain chain chair chance change chapter charge cheap check
    cheese child choice choose church circle city claim class clean clear clever climb clock close cloth
    cloud cluster coal coast coat code coffee cold collect color column come common company compare complete
    computer concern condition connect consider contain continue control cook cool copper copy corn corner
    correct cost cotton could count country course court cover cow create cross crowd cry cup current curve
    custom cut damage dance danger dark data date daughter day dead deal dear death debt decide deep degree
    delay deliver demand depend describe desert design desire detail develop device dinner direct discover
    discuss distance divide doctor document door double doubt down draw dream dress drink drive drop dry
    dust duty each ear early earth east easy eat edge effect effort egg either electric empty end endpoint
    energy engine enjoy enough enter entire equal error escape even evening event ever every exact example
    except exchange expect explain express eye face fact fail fair faith fall family famous far farm fast
    father favor fear feature feed feel field fight figure file fill final find fine finger finish fire
    first fish fit five fix flag flat flight floor flow flower fly follow food foot force foreign forest
    forget form forward four frame free fresh friend from front fruit full function future garden gate
    gateway gather general gentle get gift girl give glass goal gold good grain grand grass gray great green
    ground group grow guard guess guest guide habit hair half hall hand happen happy harbor hard harvest
    have head health hear heart heat heavy height help here hidden high hill history hold hole holiday home
    honest hope horse hospital host hot hotel hour house how human hundred hunt hurry ice idea image imagine
    important improve inch include increase index industry insect inside instead interest invite iron island
    issue item job join journey judge jump just keep kettle key kind kitchen knee knife know label labor
    lady lake lamp land language large last late latency laugh law layer lead leaf learn lease least leave
    left leg lemon length less lesson letter level library lie life lift light limit line lion liquid list
    listen little live load local lock long look lose loss lot loud love low lunch machine main make manner
    many map march mark market master match matter maybe meal mean measure meat medicine meet member memory
    mention message metal method middle might mile milk million mind minute mirror miss mix model modern
    moment money month moon more morning most mother motion mountain mouth move much music must name narrow
    nation nature near neck need needle neighbor neither nest never new news next night nine noise none noon
    north nose note nothing notice number nurse object observe ocean offer office often oil old once one
    only open operate opinion orange orbit order other our out outside over own owner page pain paint pair
    paper parent park part party pass past path pattern pause peace pencil people pepper perfect perhaps
    period person picture piece pilot place plain plan plane planet plant plate play please plenty pocket
    point poor port position possible potato pound power practice prefix prepare present press pretty price
    print prison private probable problem process produce program promise proof proper protect proud provide
    public pull pupil pure purple push put quality quarter queen question queue quick quiet quite rabbit
    race rain raise rank rapid rate rather reach read ready real reason receive recent record red reduce
    region remain remember repeat replica reply report request rest result retry return rice rich ride right
    ring rise river road rock roof room root rope rose rough round route row rubber rule run safe sail salt
    same sand save say scale school science score sea search season seat second secret section see seed seem
    segment select sell send sense sentence separate serve server seven several shade shadow shake shall
    shape share sharp sheep shelf shell shine ship shirt shoe shop shore short should shoulder shout show
    side sign signal silence silver similar simple since sing single sister six size skill skin sky sleep
    slide slow small smell smile smoke smooth snow social soft soil soldier solid some son song soon sort
    sound soup source south space speak special speech speed spell spend spirit spoon sport spot spread
    spring square stage stand star start state station stay steady steam steel step stick still stock stone
    stop store storm story strange stream street strength strong student study subject sudden sugar suggest
    summer sun supply support sure surface surprise sweet swim switch symbol system table tail take talk
    tall task taste teach team tell ten tent term test thank that their them then there these thick thin
    thing think third this thousand thread three through throw ticket tide tie tiger time tiny tired today
    together token tomorrow tongue tonight tool tooth top total touch toward tower town trace track trade
    traffic train travel tree triangle trip trouble truck true trust try turn twelve twenty twice two type
    uncle under unit until upon use usual valley value vary vegetable very view village visit voice wait
    walk wall want warm wash watch water wave way weak wealth wear weather week weight welcome well west
    wheel when where whether which while white whole whose why wide wild will win wind window wine wing
    winter wire wise wish with within without woman wonder wood wool word work worker world worry worth
    would write wrong yard year yellow yes yesterday yet young your zero zone
    """.split()  # noqa: SIM905 - a thousand literals in quotes would read worse
)
"""Lower case, ASCII, each once, sorted."""
