-- A point in the history, with what is small enough to be read at it.
-- Gives: version, serving time, lapses, owners with their values
return {call('XREVRANGE',stream,'+','-','COUNT',1)[1][1],whole(now),call('HGETALL',lapses),call('HGETALL',owners)}
