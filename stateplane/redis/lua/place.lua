-- How a booking comes to stand: shared by book, select and reclaim.

-- The older attempt of the same key: superseded if it drains, else outrun. Gives its id if it was superseded.
local function outrun(id)
  local r,was=load(id)
  if not r or r[SUPERSEDED]==1 or r[OUTRUN]==1 then return '' end
  if r[STATE]==ACTIVE then
    r[OUTRUN]=1
    save(id,r,was)
    return ''
  end
  r[SUPERSEDED]=1
  if SUPER then r[DEADLINE]=math.min(r[DEADLINE],now+SUPER) end
  save(id,r,was)
  return id
end

-- Its place among the attempts of its key. mode: new, again or revived.
local function rank(id,r,mode)
  if r[KEY]=='' then
    if mode=='new' then r[ATTEMPT]=1 end
    return ''
  end
  local attempt,number,latest=known(r[KEY])
  if mode=='new' then r[ATTEMPT]=(attempt or 0)+1 end
  if not attempt then
    call('HSET',attempts,r[KEY],r[ATTEMPT]..' 1 '..id)
    return ''
  end
  if latest~=id and (mode=='revived' or (mode=='again' and r[ATTEMPT]<=attempt)) then
    call('HSET',attempts,r[KEY],attempt..' '..(number+1)..' '..latest)
    r[OUTRUN]=1
    if r[STATE]==DRAINING then r[SUPERSEDED]=1 end
    return ''
  end
  call('HSET',attempts,r[KEY],r[ATTEMPT]..' '..(number+1)..' '..id)
  if latest==id then return '' end
  return outrun(latest)
end

local function place(id,r,mode)
  local superseded=rank(id,r,mode)
  if stone then
    call('HDEL',tombs,id)
    call('ZREM',buried,id)
  end
  count(r[WORKER],r[TOKENS],r[BLOCKS],r[REQUESTS])
  r[LEASED]=grant(r[OWNER],EPOCH)
  return answer('done',r,'',superseded,save(id,r,false))
end

-- Why it cannot be booked, or that it stands already; else nil and the term under which it can.
local function bookable(id,r)
  local s,was=load(id)
  if s then
    if r[TERM]>s[TERM] then remove(id,s,was) return nil,r[TERM] end
    if s[OWNER]~=r[OWNER] then return answer('stale',s) end
    if r[TERM]==0 or s[STATE]==ACTIVE then return answer('same',s) end
    if s[TERM]>r[TERM] then return answer('stale',s) end
    if r[STATE]==DRAINING then return answer('same',s) end
    if s[SUPERSEDED]==1 then return answer('stale',s) end
    remove(id,s,was)
    return nil,r[TERM]+1
  end
  local cause,ended=tomb(id)
  if not cause then return nil,math.max(r[TERM],1) end
  local newer=ended and (r[TERM]>ended[TERM] or (r[TERM]==ended[TERM] and r[OWNER]==ended[OWNER]))
  if not newer or ended[SUPERSEDED]==1 or r[STATE]==DRAINING then return answer('gone',nil,cause) end
  return nil,r[TERM]+1
end
