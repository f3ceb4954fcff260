-- Choose the cheapest of the candidates by the exact sums, the first of equals, and book there.
-- ARGV from 9: id, record, candidates = msgpack {workers, flat {base, tokens, blocks, requests, most requests}},
-- weights = msgpack {per token, per block, per request}
local id,r=ARGV[9],decode(ARGV[9],ARGV[10])
r[TERM],r[OP],r[STATE],r[CAUSE],r[SUPERSEDED],r[OUTRUN]=0,0,ACTIVE,'',0,0
local refused,term=bookable(id,r)
if refused then return refused end
local offered,weights=cmsgpack.unpack(ARGV[11]),cmsgpack.unpack(ARGV[12])
local workers,numbers=offered[1],offered[2]
local booked=call('HMGET',sums,unpack(workers))
local best,lowest=nil,math.huge
for i=1,#workers do
  local at=5*(i-1)
  local tokens,blocks,requests=0,0,0
  if booked[i] then
    local a,b,c=string.match(booked[i],'^(%d+) (%d+) (%d+)$')
    if not a then error({err='CORRUPT sums of '..workers[i]}) end
    tokens,blocks,requests=tonumber(a),tonumber(b),tonumber(c)
  end
  local most=numbers[at+5]
  if most==0 or requests+numbers[at+4]<=most then
    local price=numbers[at+1]+weights[1]*tokens
    price=price+weights[2]*blocks
    price=price+weights[3]*requests
    if price<lowest then best,lowest=i,price end
  end
end
if not best then return answer('full') end
local at=5*(best-1)
r[WORKER],r[TOKENS],r[BLOCKS],r[REQUESTS]=workers[best],numbers[at+2],numbers[at+3],numbers[at+4]
r[TERM]=term
return place(id,r,'new')
