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
--@kind 23 calendar
--@kind 54 inflight
--@kind 56 compactlog
--@kind 25 leakyqueue

--@section view
if status == 0 then
  --@choose view
  else status = OUT_OF_RANGE end
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

--@section ahead
-- What lies too far ahead of the clock leaves as a whole, in a take before its ZADD.
if may('ZADD', log, at, '') then e, what = try('UNLINK', log), 'UNLINK' else what = 'ZADD' end
if type(e) == 'number' then e, what, left = nil, nil, -2 end

--@section answer
if status > 0 then
  met, refused = bad or string.char(status), true
  --mutant:lua-alternative-stops
  if firsts > 0 and (status ~= CORRUPT and status ~= FAILED or string.byte(flags, -firsts) > 0) then stop = true end
end
if alone then reply = sec .. ' ' .. usec .. met
else
  n = n + 1
  reply[n] = met
end
