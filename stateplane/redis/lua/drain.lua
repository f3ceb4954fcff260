-- Count it on for a while only, under a new term. ARGV from 9: id, term, op, cause, ms or -1
local id,term,op=ARGV[9],tonumber(ARGV[10]),tonumber(ARGV[11])
local r,was=owned(id,term,op)
if not r then return was end
local ms=tonumber(ARGV[13])
if ms<0 then ms=DRAIN end
local deadline=now+ms
if r[SUPERSEDED]==1 then
  deadline=math.min(deadline,r[DEADLINE])
elseif r[OUTRUN]==1 then
  r[SUPERSEDED]=1
  if SUPER then deadline=math.min(deadline,now+SUPER) end
end
r[TERM],r[OP],r[STATE],r[CAUSE],r[DEADLINE],r[VIA]=term+1,0,DRAINING,ARGV[12],deadline,op
save(id,r,was)
return answer('done',r)
