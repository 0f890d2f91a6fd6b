-- What is done for each policy or group: what each algorithm does in its own way,
-- and what they share.

-- The algorithms, by what stands for them on the wire; see algo.Kind.Wire. A line
-- "--@choose part" becomes an if-chain over those that have the part. It asks for
-- the one first that most use.
--@kind 19 tokenbucket
--@kind 18 slidingwindow
--@kind 17 fixedwindow
--@kind 36 bucketedwindow
--@kind 53 slidinglog

--@section range
-- Checked where it was made, and here again: a client of another release, or
-- none of ours, must not store what nobody could have meant. Fractions are
-- looked for one by one: beside an instant a sum would swallow small ones. NaN
-- and infinity have no whole part either.
if not (cost >= least and cost <= limit and limit <= 68719476736 and period >= 1000 and period <= 34560000000000 and limit % 1 + period % 1 + cost % 1 == 0) then status = 82 -- mutant: ranges-in-script
else
  --@choose range
  end
end

--@section view
if status == 0 then
  --@choose view
  else status = 82 end
end

--@section release
-- leaves = when the oldest units, need of them, have left.
--@choose release
end

--@section new
-- fresh = the value to store, nil for none: also a log stores what was taken.
if taken > 0 then
  --@choose take
  end
else
  --@choose denied
  end
end

--@section answer
if status > 0 then met = bad or string.char(status) end
if alone then reply = sec .. ' ' .. usec .. met
else
  n = n + 1
  reply[n] = met
end

--@section fails
-- A read, or the group's first write, failed: nothing of the group is stored.
-- what is the command, e its error, or nil where the right to it is missing. A
-- missing right is this group's alone. An error that begins with another word
-- (OOM, READONLY) concerns all groups; Redis makes it for a script's first write
-- only, so it is returned where no group has written.
local err = e and e.err or 'ERR no right to it'
if string.find(err, '^WRONGTYPE') then status = math.max(status, 67)
elseif wrote or string.find(err, '^ERR') or string.find(err, '^NOPERM') then status, bad = 69, 'E' .. what .. ': ' .. err .. '\n'
else return e end

--@section horizon
-- ends is until when the value counts. It is kept for longer, by spare, so that not
-- every take sets an expiry, but for no longer than twice a period.
if ends > hz * 1000000 then
  hz = math.min(math.ceil((ends + spare) / 1000000), marks)
  if hz > longer then longer = hz end
end
if due ~= own and (due > marks or due * 1000000 < now) then sweep, due = true, own end

--@section lasts
-- Only ever longer: the key holds other policies' counts too. A key without an
-- expiry answers -1 and gets one. The right to set it is asked for before the
-- value is written; to set it before would be the script's first write, after
-- which Redis no longer refuses the second when its memory is full.
if longer > 0 then
  ms = longer * 1000 - math.floor(now / 1000) + slack
  local left, e, what = try('PTTL', key)
  if type(left) == 'table' then e, what = left, 'PTTL'
  elseif left >= ms then ms = 0
  elseif not may('PEXPIRE', key, ms) then what = 'PEXPIRE' end
  if left == -2 then sweep = false end
  if what then
    --@include each.fails
  end
end

--@section stored
if e ~= 0 and type(e) == 'table' then
  local what = 'HSET'
  --@include each.fails
else
  wrote = true
  if ms > 0 then try('PEXPIRE', key, ms) end
  if sweep then
    --@include each.sweep
  end
end

--@section sweep
-- Removes the fields that no longer count, and says in the others when to look
-- again: when the first of them ends. Fields of later versions stay. Best effort:
-- the group is decided. A key of many fields is looked through in part.
local all, live, least, tick, late = try('HRANDFIELD', key, 64, 'WITHVALUES'), {}, marks, math.floor(now / 1000000), slack / 1000
for i = 2, #all, 2 do
  local ends = #all[i] > 24 and string.find(all[i], '^[\2\3]') and parse('<I4', all[i], 2)
  if ends and ends + late < tick then try('HDEL', key, all[i - 1])
  elseif ends then
    live[#live + 1] = i
    least = math.min(least, ends)
  end
end
local due = own
if #live ~= small then due = math.min(math.max(least, tick) + late, marks) end
for _, i in ipairs(live) do
  local v = all[i]
  if parse('<I4', v, 6) ~= due then try('HSET', key, all[i - 1], string.sub(v, 1, 5) .. pack('<I4', due) .. string.sub(v, 10)) end
end
