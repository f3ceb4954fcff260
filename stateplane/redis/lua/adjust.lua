-- Set what it occupies. ARGV from 9: id, term, op, tokens, blocks, requests
local id,term,op=ARGV[9],tonumber(ARGV[10]),tonumber(ARGV[11])
local r,was=owned(id,term,op)
if not r then return was end
local tokens,blocks,requests=tonumber(ARGV[12]),tonumber(ARGV[13]),tonumber(ARGV[14])
count(r[WORKER],tokens-r[TOKENS],blocks-r[BLOCKS],requests-r[REQUESTS])
r[TOKENS],r[BLOCKS],r[REQUESTS],r[OP]=tokens,blocks,requests,op
save(id,r,was)
return answer('done',r)
