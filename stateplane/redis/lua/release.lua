-- End it. ARGV from 9: id, cause, "1" if the cause is a proof, term that an assumed one was judged in
local id,cause,proven=ARGV[9],ARGV[10],ARGV[11]=='1'
local r,was=load(id)
if r then
  if not proven and (r[STATE]==ACTIVE or r[TERM]~=tonumber(ARGV[12])) then return answer('stale',r) end
  finish(id,r,was,cause,proven)
  return answer('done',nil,cause)
end
local earlier,kept=tomb(id)
if not proven then
  if earlier then return answer('gone',nil,earlier) end
  return answer('unknown')
end
if earlier and not kept then return answer('same',nil,earlier) end
bury(id,cause,'')
return answer(earlier and 'done' or 'unknown',nil,cause)
