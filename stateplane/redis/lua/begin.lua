-- The epoch. Each new connection runs this first; without the prelude.
-- A run id other than the remembered one (restart, failover) may mean lost writes: a new epoch begins, and with it all
-- bookings are void until their owners book them again. Ends and leases that survived stay; serving time stands still
-- over the pause.
-- ARGV: run id, an epoch that must be passed, schema, lease ms
-- Gives: epoch
local meta,books,sums,drains,active,lapses,attempts=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5],KEYS[6],KEYS[7]
local stream=KEYS[12]
local call=redis.call
local m=call('HMGET',meta,'epoch','run','schema','last')
if m[3] and tonumber(m[3])>tonumber(ARGV[3]) then return redis.error_reply('SCHEMA '..m[3]) end
if m[1] and m[2]==ARGV[1] then return m[1] end
local t=call('TIME')
local server=t[1]*1000+math.floor(t[2]/1000)
local epoch=math.max(server,tonumber(m[1] or 0)+1,tonumber(ARGV[2])+1)
local last=tonumber(m[4] or server)
local function whole(n) return string.format('%.0f',n) end
call('UNLINK',books,sums,drains,active,lapses,attempts,stream)
call('HSET',meta,'epoch',whole(epoch),'run',ARGV[1],'schema',ARGV[3],'last',whole(last),'skew',whole(server-last),
  'hold',whole(last+ARGV[4]))
call('XADD',stream,whole(epoch)..'-1','e'..ARGV[3],whole(epoch))
return whole(epoch)
