-- A heartbeat: keep serving time, renew this owner's lease, lapse the silent, reap one slice.
-- ARGV from 9: info (JSON), slice, "1" to join
-- Gives: version, lapsed owners, reaped, more to reap, rebased, returned, owners with their values, schema that is written
local passed=server-skew-last
local rebased=0
if passed>=0 and passed<=longest then
  last=last+passed
else
  rebased=1
  local before=last
  if passed>0 then last=last+BEAT end
  skew=server-last
  if before>=hold then hold=last+LEASE end
end
now=last
call('HSET',meta,'last',whole(last),'skew',whole(skew),'hold',whole(hold))
local joining=ARGV[11]=='1'
local n,was=grant(ME,joining and '0' or EPOCH)
local rebooked=string.match(call('HGET',owners,ME),'^%d+ (%d+)')
call('HSET',owners,ME,n..' '..rebooked..' '..ARGV[9])
call('ZADD',leases,whole(now+LEASE),ME)
local lapsed={}
if last>=hold then
  lapsed=call('ZRANGEBYSCORE',leases,'-inf',whole(now),'LIMIT',0,64)
  for _,owner in ipairs(lapsed) do
    lapse(owner,string.match(call('HGET',owners,owner) or '0','^%d+'),'lease')
  end
end
local reaped,more=reap(tonumber(ARGV[10]))
local all=call('HGETALL',owners)
if S<NEWEST then
  local lowest=NEWEST
  for i=2,#all,2 do
    lowest=math.min(lowest,tonumber(string.match(all[i],'"schema":"(%d+)"')) or OLDEST)
  end
  if lowest>S then
    S=lowest
    call('HSET',meta,'schema',S)
  end
end
local top=call('XREVRANGE',stream,'+','-','COUNT',1)
return {top[1][1],lapsed,reaped,more,rebased,(was or joining) and 0 or 1,all,S}
