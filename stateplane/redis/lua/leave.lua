-- End this owner's lease in good order: its active bookings are handed over as draining.
local raw=call('HGET',owners,ME)
if raw then lapse(ME,string.match(raw,'^%d+'),'handed') end
return version
