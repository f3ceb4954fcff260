-- Book. ARGV from 9: id, record, ms that it still drains or -1
local id,r=ARGV[9],decode(ARGV[9],ARGV[10])
local again=r[TERM]>0
local refused,term=bookable(id,r)
if refused then return refused end
if not again or term~=r[TERM] then r[OP]=0 end
r[TERM]=term
if not again then r[STATE],r[OUTRUN]=ACTIVE,0 end
if r[STATE]==ACTIVE then
  r[CAUSE],r[SUPERSEDED]='',0
else
  local ms=tonumber(ARGV[11])
  if ms<0 then ms=DRAIN end
  r[DEADLINE]=now+math.min(ms,DRAIN)
end
return place(id,r,again and 'again' or 'new')
