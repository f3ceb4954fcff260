-- How bookings end, one by one or with their owner: shared by release, beat, reap and leave.

local function bury(id,cause,raw)
  local till=whole(now+TOMB)
  call('HSET',tombs,id,till..' '..cause..' '..raw)
  call('ZADD',buried,till,id)
end

local function finish(id,r,was,cause,proven)
  remove(id,r,was)
  bury(id,cause,proven and '' or cmsgpack.pack(r))
  emit('g'..S,id,'c',cause)
end

-- All that is active under the lease turns draining by this one write.
local function lapse(owner,n,cause)
  call('HDEL',owners,owner)
  call('ZREM',leases,owner)
  local deadline=whole(now+DRAIN)
  if #call('ZRANGEBYLEX',active,'['..n..':','('..n..';','LIMIT',0,1)>0 then
    call('HSET',lapses,n,deadline..' '..cause)
  end
  emit('l'..S,owner,'c',cause,'d',whole(DRAIN),'u',deadline)
end

-- End at most so many bookings that are due and forget as many tombstones; whether there is more to do.
local function reap(limit)
  local reaped,more=0,0
  local all=call('HGETALL',lapses)
  for i=1,#all,2 do
    if tonumber(string.match(all[i+1],'^%S+'))<=now and reaped<limit then
      local n=all[i]
      local ids=call('ZRANGEBYLEX',active,'['..n..':','('..n..';','LIMIT',0,limit-reaped)
      for _,member in ipairs(ids) do
        local id=string.sub(member,#n+2)
        local r,was=load(id)
        if r then finish(id,r,was,'deadline',false) else call('ZREM',active,member) end
      end
      reaped=reaped+#ids
      if reaped<limit then call('HDEL',lapses,n) end
    end
  end
  if reaped<limit then
    for _,id in ipairs(call('ZRANGEBYSCORE',drains,'-inf',whole(now),'LIMIT',0,limit-reaped)) do
      local r,was=load(id)
      if r then finish(id,r,was,'deadline',false) else call('ZREM',drains,id) end
      reaped=reaped+1
    end
  end
  local stones=call('ZRANGEBYSCORE',buried,'-inf',whole(now),'LIMIT',0,limit)
  if #stones>0 then
    call('HDEL',tombs,unpack(stones))
    call('ZREM',buried,unpack(stones))
  end
  if reaped>=limit or #stones>=limit then more=1 end
  return reaped,more
end
