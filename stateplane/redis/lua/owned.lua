-- What an owner's operation finds: shared by move, adjust and drain.

-- The record if this operation of its owner is the next one, else nil and the answer.
local function owned(id,term,op)
  local r,was=load(id)
  if not r then
    local cause=tomb(id)
    if cause then return nil,answer('gone',nil,cause) end
    return nil,answer('unknown')
  end
  if r[OWNER]==ME and r[TERM]==term and op>r[OP] then return r,was end
  if r[OWNER]==ME and ((r[TERM]==term and op==r[OP]) or (r[TERM]==term+1 and op==r[VIA] and r[OP]==0)) then
    return nil,answer('same',r)
  end
  return nil,answer('stale',r)
end
