-- Proof of life, brought by this owner. ARGV from 9: id
local id=ARGV[9]
local r,was=load(id)
if not r then
  local cause,ended=tomb(id)
  if not cause then return answer('unknown') end
  if not ended or ended[SUPERSEDED]==1 then return answer('gone',nil,cause) end
  ended[OWNER],ended[TERM],ended[OP],ended[STATE],ended[CAUSE],ended[VIA]=ME,ended[TERM]+1,0,ACTIVE,'',-1
  return place(id,ended,'revived')
end
if r[STATE]==ACTIVE then return answer(r[OWNER]==ME and 'same' or 'stale',r) end
if r[SUPERSEDED]==1 then
  r[DEADLINE]=math.max(r[DEADLINE],now+superdrain())
  save(id,r,was)
  return answer('same',r)
end
r[OWNER],r[TERM],r[OP],r[STATE],r[CAUSE],r[VIA]=ME,r[TERM]+1,0,ACTIVE,'',-1
r[LEASED]=grant(ME,EPOCH)
save(id,r,was)
return answer('done',r)
