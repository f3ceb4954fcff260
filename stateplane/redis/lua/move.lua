-- Another worker serves it; what may still run on the first drains on as "<id>~n".
-- ARGV from 9: id, term, op, worker, tokens, blocks, requests
local id,term,op=ARGV[9],tonumber(ARGV[10]),tonumber(ARGV[11])
local r,was=owned(id,term,op)
if not r then return was end
if r[STATE]==DRAINING then return answer('stale',r) end
if r[WORKER]==ARGV[12] then return answer('same',r) end
local n=1
while call('HEXISTS',books,id..'~'..n)==1 or call('HEXISTS',tombs,id..'~'..n)==1 do n=n+1 end
local behind={}
for i=1,VIA do behind[i]=r[i] end
behind[KEY],behind[TERM],behind[OP],behind[STATE],behind[CAUSE]='',1,0,DRAINING,'moved'
behind[SUPERSEDED],behind[OUTRUN],behind[DEADLINE],behind[VIA]=1,0,now+superdrain(),-1
save(id..'~'..n,behind,false)
r[WORKER],r[TOKENS],r[BLOCKS],r[REQUESTS]=ARGV[12],tonumber(ARGV[13]),tonumber(ARGV[14]),tonumber(ARGV[15])
count(r[WORKER],r[TOKENS],r[BLOCKS],r[REQUESTS])
r[TERM],r[OP],r[VIA]=term+1,0,op
save(id,r,was)
return answer('done',r)
