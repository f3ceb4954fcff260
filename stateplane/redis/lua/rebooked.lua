-- All live bookings of this owner stand in the present epoch. Gives: status, version
grant(ME,EPOCH)
local n,epoch,info=string.match(call('HGET',owners,ME),'^(%d+) (%d+) (.*)$')
if epoch==EPOCH then return {'same',call('XREVRANGE',stream,'+','-','COUNT',1)[1][1]} end
call('HSET',owners,ME,n..' '..EPOCH..' '..info)
emit('k'..S,ME)
return {'done',version}
