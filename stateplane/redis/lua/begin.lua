-- The epoch. Each new connection runs this first; without the prelude.
-- A run id other than the remembered one (restart, failover) may mean lost writes: a new epoch begins, and with it all
-- bookings are void until their owners book them again. Ends and leases that survived stay; serving time stands still
-- over the pause.
-- Records are written in the oldest schema that this program knows until a heartbeat finds that all members read newer.
-- ARGV: run id, an epoch that must be passed, lease ms
-- Gives: epoch, schema that is written
local meta,books,sums,drains,active,lapses,attempts=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5],KEYS[6],KEYS[7]
local stream=KEYS[12]
local call=redis.call
local m=call('HMGET',meta,'epoch','run','schema','last')
local schema=tonumber(m[3] or OLDEST)
if schema and (schema>NEWEST or schema<OLDEST) then return redis.error_reply('SCHEMA '..schema..' '..NEWEST) end
if (m[1] or m[3] or m[4]) and not (tonumber(m[1]) and tonumber(m[3]) and tonumber(m[4])) then
  return redis.error_reply('CORRUPT '..meta)
end
if m[1] and m[2]==ARGV[1] then return {m[1],schema} end
local t=call('TIME')
local server=t[1]*1000+math.floor(t[2]/1000)
local epoch=math.max(server,tonumber(m[1] or 0)+1,tonumber(ARGV[2])+1)
local last=tonumber(m[4] or server)
local function whole(n) return string.format('%.0f',n) end
call('UNLINK',books,sums,drains,active,lapses,attempts,stream)
call('HSET',meta,'epoch',whole(epoch),'run',ARGV[1],'schema',schema,'last',whole(last),'skew',whole(server-last),
  'hold',whole(last+ARGV[3]))
call('XADD',stream,whole(epoch)..'-1','e'..schema,whole(epoch))
return {whole(epoch),schema}
