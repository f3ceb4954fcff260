-- One more slice of what is due. ARGV from 9: slice. Gives: reaped, more to reap
local reaped,more=reap(tonumber(ARGV[9]))
return {reaped,more}
