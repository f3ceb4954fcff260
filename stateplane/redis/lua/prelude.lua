-- The head of every script but begin.lua, kept small because every call runs it: keys, the epoch's check, serving time, and how a booking is kept.
-- KEYS: every one carries the pool's hash tag, and none is computed here
--   1 meta      hash   epoch, run, schema, last, skew, hold, lease (counter)
--   2 books     hash   id -> record (msgpack array, fields below)
--   3 sums      hash   worker -> "tokens blocks requests"
--   4 drains    zset   id of a draining booking by its deadline
--   5 active    zset   "<lease>:<id>" of an active one, all of score 0: a lease's bookings are one range
--   6 lapses    hash   lease -> "deadline cause": its active bookings are draining because this says so
--   7 attempts  hash   request key -> "attempt count latest-id"
--   8 tombs     hash   id -> "until cause record-or-nothing"
--   9 buried    zset   id by the end of its tombstone
--  10 owners    hash   owner -> "lease rebooked-epoch info"
--  11 leases    zset   owner by the end of its lease
--  12 stream    the changes; id = <epoch>-<number>
-- NEWEST and OLDEST, the schemas that this program reads, stand in the line before.
-- ARGV: 1 epoch, 2 owner, 3 lease, 4 heartbeat, 5 drain, 6 superseded drain or -1, 7 tombstone (ms), 8 history; from 9 on
-- the operation's own. All deadlines are serving time, milliseconds.
local meta,books,sums,drains,active,lapses,attempts,tombs,buried,owners,leases,stream=unpack(KEYS)
local call=redis.call
local EPOCH,ME=ARGV[1],ARGV[2]
local LEASE,BEAT,DRAIN,SUPER,TOMB=tonumber(ARGV[3]),tonumber(ARGV[4]),tonumber(ARGV[5]),tonumber(ARGV[6]),tonumber(ARGV[7])
local m=call('HMGET',meta,'epoch','last','skew','hold','schema')
if m[1]~=EPOCH then return redis.error_reply('EPOCH '..(m[1] or 'none')) end
local S=tonumber(m[5]) -- the schema that is written
if not S then return redis.error_reply('CORRUPT '..meta) end
if S>NEWEST then return redis.error_reply('SCHEMA '..S..' '..NEWEST) end
local t=call('TIME')
local server=t[1]*1000+math.floor(t[2]/1000)
local last,skew,hold=tonumber(m[2]),tonumber(m[3]),tonumber(m[4])
local longest=BEAT+math.floor(BEAT/2)
local now=math.min(math.max(server-skew,last),last+longest)
if SUPER<0 then SUPER=nil end

-- fields of a record
local SCHEMA,KEY,WORKER,OWNER,LEASED,TOKENS,BLOCKS,REQUESTS,ATTEMPT,TERM,OP,STATE,CAUSE,SUPERSEDED,OUTRUN,DEADLINE,VIA
  =1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17
local ACTIVE,DRAINING=0,1
local version=''

local function whole(n) return string.format('%.0f',n) end

local function emit(...)
  version=call('XADD',stream,'MAXLEN','~',ARGV[8],EPOCH..'-*',...)
end

local function decode(id,raw)
  local ok,r=pcall(cmsgpack.unpack,raw)
  if not ok or type(r)~='table' or #r<VIA then error({err='CORRUPT '..id}) end
  return r
end

-- The record as it stands, its owner's lapse written in; with the lease under which it is kept as active, else nil.
local function load(id)
  local raw=call('HGET',books,id)
  if not raw then return nil end
  local r=decode(id,raw)
  if r[STATE]~=ACTIVE then return r,nil end
  local was=r[LEASED]
  local lapse=call('HGET',lapses,was)
  if lapse then
    local deadline,cause=string.match(lapse,'^(%S+) (%S+)$')
    r[STATE],r[CAUSE],r[DEADLINE]=DRAINING,cause,tonumber(deadline)
    if r[OUTRUN]==1 then r[SUPERSEDED]=1 end
  end
  return r,was
end

local function left(r)
  if r[STATE]==ACTIVE then return -1 end
  return math.max(0,r[DEADLINE]-now)
end

-- Keep and announce it. was: the lease under which it was active, nil when it was draining, false when it was not there.
local function save(id,r,was)
  if r[STATE]==ACTIVE then
    r[DEADLINE]=0
    if was~=r[LEASED] then
      if was then call('ZREM',active,was..':'..id) elseif was==nil then call('ZREM',drains,id) end
      call('ZADD',active,0,r[LEASED]..':'..id)
    end
  else
    if was then call('ZREM',active,was..':'..id) end
    call('ZADD',drains,whole(r[DEADLINE]),id)
  end
  local raw=cmsgpack.pack(r)
  call('HSET',books,id,raw)
  emit('b'..r[SCHEMA],id,'r',raw,'d',whole(left(r)))
  return raw
end

local function count(worker,tokens,blocks,requests)
  local raw=call('HGET',sums,worker)
  if raw then
    local a,b,c=string.match(raw,'^(%d+) (%d+) (%d+)$')
    if not a then error({err='CORRUPT sums of '..worker}) end
    tokens,blocks,requests=tokens+a,blocks+b,requests+c
  end
  if tokens==0 and blocks==0 and requests==0 then
    call('HDEL',sums,worker)
  else
    call('HSET',sums,worker,string.format('%.0f %.0f %.0f',tokens,blocks,requests))
  end
end

local function known(key)
  local raw=call('HGET',attempts,key)
  if not raw then return nil end
  local attempt,number,latest=string.match(raw,'^(%d+) (%d+) (.*)$')
  return tonumber(attempt),tonumber(number),latest
end

-- Cause and, after an assumed end, the record. stone: whether one stands, for it falls when its booking comes back.
local stone=false
local function tomb(id)
  local raw=call('HGET',tombs,id)
  if not raw then return nil end
  stone=true
  local cause,kept=string.match(raw,'^%S+ (%S+) (.*)$')
  if not cause then error({err='CORRUPT tombstone of '..id}) end
  if kept=='' then return cause,nil end
  return cause,decode(id,kept)
end

local function remove(id,r,was)
  call('HDEL',books,id)
  if was then call('ZREM',active,was..':'..id) else call('ZREM',drains,id) end
  count(r[WORKER],0-r[TOKENS],0-r[BLOCKS],0-r[REQUESTS])
  if r[KEY]~='' then
    local attempt,number,latest=known(r[KEY])
    if attempt then
      if number<=1 then call('HDEL',attempts,r[KEY])
      else call('HSET',attempts,r[KEY],attempt..' '..(number-1)..' '..latest) end
    end
  end
end

-- The number of this owner's lease, a new one if it has none, and whether it had one.
local function grant(owner,rebooked)
  local raw=call('HGET',owners,owner)
  if raw then return tonumber(string.match(raw,'^(%d+)')),true end
  local n=call('HINCRBY',meta,'lease',1)
  call('HSET',owners,owner,n..' '..rebooked..' {}')
  call('ZADD',leases,whole(now+LEASE),owner)
  return n,false
end

local function answer(status,r,cause,superseded,raw)
  return {status,raw or (r and cmsgpack.pack(r)) or '',r and whole(left(r)) or '-1',cause or '',superseded or '',version}
end

local function superdrain() return SUPER or DRAIN end
