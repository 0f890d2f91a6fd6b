-- The twin of algo/rule/inflight.go, as a sorted set: a member per lease, scored by its
-- end. x is the last end, y the rank of the first slot that is held.
-- Member: the lease's ID. ahead: the last one ends further ahead than a step back of
-- one period may put it, and all count as absent.

--@section range
if op == TAKE then status = OUT_OF_RANGE end

--@section view
local last, ended = try('ZRANGE', log, '-1', '-1', 'WITHSCORES')
local e, what = last.err and last, 'ZRANGE'
if not e and last[2] then
  local all
  ended, what = try('ZCOUNT', log, '-inf', now), 'ZCOUNT'
  if type(ended) == 'table' then e = ended
  --mutant:lua-slots-far-ahead
  elseif tonumber(last[2]) > now + 2 * period then ahead = true
  elseif tonumber(last[2]) > now then
    all, what = try('ZCARD', log), 'ZCARD'
    if type(all) == 'table' then e = all
    else x, y, used = tonumber(last[2]), ended, all - ended end
  else y = ended end
end
if e then
  --@include errors.failed
elseif x % 1 ~= 0 or x > 9007199254740992 then status = CORRUPT end

--@section release
local e = try('ZRANGE', log, y + need - 1, y + need - 1, 'WITHSCORES')
if e.err then
  local what = 'ZRANGE'
  --@include errors.failed
else leaves = tonumber(e[2]) end

--@section take
-- As a log's: stored before anything is dropped, and the rights for what follows
-- asked for before.
local ms, e, what = length + slack
local left = try('PTTL', log)
if type(left) == 'table' then e, what = left, 'PTTL'
elseif left < ms and not may('PEXPIRE', log, ms) then what = 'PEXPIRE'
elseif y > 0 and not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK'
elseif ahead then
  --@include kinds.ahead
end
if not what then
  e = try('ZADD', log, till, id)
  if type(e) == 'table' then what = 'ZADD' end
end
if what then
  --@include errors.failed
else
  wrote = true
  if e == 0 then y = y - 1 end -- an ID used again: its ended slot has moved
  --mutant:bounded-slots
  if y > 0 then try('ZREMRANGEBYRANK', log, 0, math.min(y, 128) - 1) end
  if left < ms then try('PEXPIRE', log, ms + length) end
end

--@section rights
if not may('ZADD', log, 1, 'm') then what = 'ZADD' elseif not may('PEXPIRE', log, 1) then what = 'PEXPIRE'
elseif not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK' elseif not may('PTTL', log) then what = 'PTTL'
elseif ahead and not may('UNLINK', log) then what = 'UNLINK' end

--@section reset
e, what = try('ZCARD', log), 'ZCARD'

--@section giveback
writes[#writes + 1] = {'ZREM', log, id}

--@section extend
-- The slot is taken until the lease's new end.
writes[#writes + 1] = {'ZADD', log, 'XX', till, id}
writes[#writes + 1] = {'PEXPIRE', log, length + slack, 'GT'}
