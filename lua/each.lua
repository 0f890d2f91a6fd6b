-- What is done for each policy: the if-chains over the kinds, and what they
-- share. Kinds as in algo.Kind; the one that most use is asked for first.

--@section view
if status > 0 then
elseif kind == 3 then
  --@include tokenbucket.view
elseif kind == 2 then
  --@include slidingwindow.view
elseif kind == 1 then
  --@include fixedwindow.view
elseif kind == 4 then
  --@include bucketedwindow.view
else
  --@include slidinglog.view
end

--@section release
if kind == 4 then
  --@include bucketedwindow.release
else
  --@include slidinglog.release
end

--@section take
if kind == 3 then
  --@include tokenbucket.take
elseif kind == 2 then
  --@include slidingwindow.take
elseif kind == 1 then
  --@include fixedwindow.take
elseif kind == 4 then
  --@include bucketedwindow.take
else
  --@include slidinglog.take
end

--@section range
-- Checked where it was made, and here again: a client of another release, or
-- none of ours, must not store what nobody could have meant. Fractions are
-- looked for one by one: beside an instant a sum would swallow small ones. NaN
-- and infinity have no whole part either.
if not (cost >= least and cost <= limit and limit <= 2147483648 and period >= 1000 and period <= 34560000000000 and limit % 1 + period % 1 + cost % 1 == 0) then status = 82
elseif kind > 2 then
  if kind == 3 then
    if not (a >= 1 and a <= 2251799813685248 and b >= 1 and b <= period and fill >= 1 and fill <= 4503599627370496 and a % 1 + b % 1 + fill % 1 == 0) then status = 82 end
  elseif kind == 4 then
    if not (a >= 2 and a <= 3600 and a % 1 == 0 and b == math.ceil(period / a)) then status = 82 end
  elseif kind ~= 5 then status = 82 end
elseif kind < 1 then status = 82 end

--@section refuse
-- A group that nothing is decided of; also the whole answer to a reset.
local met = string.char(status)
--@include each.answer

--@section answer
if alone then reply = sec .. ' ' .. usec .. met
else
  n = n + 1
  reply[n] = met
end

--@section keep
-- A denied call stores nothing, but what denied it must live for as long as it
-- counts by this call's numbers: those it was stored by may have been shorter.
local lasts = 0
if kind == 1 then lasts = x + period
elseif kind == 2 then lasts = x + period + period
elseif kind == 3 then lasts = at + fill
elseif kind == 4 then lasts = x + b + period
elseif call('PTTL', log) < math.ceil((x + period - now) / 1000) + slack then
  call('PEXPIRE', log, math.ceil((x + period - now) / 1000) + slack)
end
if lasts > hz and lasts > longer then longer = lasts end

--@section lasts
-- Only ever longer: the key holds other policies' counts too. A key that has
-- no expiry answers -1 and gets one. The right to set it is asked for before
-- the value is written; to set it before would be the script's first write,
-- after which Redis no longer refuses the second when its memory is full.
local ms = 0
if longer > 0 then
  ms = math.ceil((longer - now) / 1000) + slack
  if call('PTTL', key) >= ms then ms = 0
  elseif not redis.acl_check_cmd('PEXPIRE', key, ms) then return redis.error_reply('ERR no right to call PEXPIRE') end
end

--@section expire
if ms > 0 then call('PEXPIRE', key, ms) end
