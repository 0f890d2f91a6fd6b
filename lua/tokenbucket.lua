-- The twin of algo/tokenbucket.go. x is the level at the instant at, in 2^-15
-- of a unit; a / b is how many of those leak a microsecond; fill is how long a
-- full bucket takes to be unused.
-- Kept: version, horizon, due, level, instant. Once a Reserve has charged it, two
-- numbers behind: since when is counted what is given back, and how much that is, in
-- fractions. An earlier release drops them. y is the level's instant, z and sum are
-- these two; z is 0 where they are not there.

--@section range
if not (a >= 1 and a <= 2251799813685248 and b >= 1 and b <= period and fill >= 1 and fill <= 4503599627370496 and a % 1 + b % 1 + fill % 1 == 0) then status = 82 end

--@section view
if not v then
elseif #v < 25 then status = 67
else
  if #v > 40 then
    z, sum = parse('<dd', v, 26)
    if not (z >= 0 and sum >= 0 and z % 1 + sum % 1 == 0) then status = 67 end
  end
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, d, level, t = parse('<BI4I4dd', v)
  if version ~= 3 or not (t <= 9007199254740992 and level >= 0 and level <= 4503599627370496 and t >= 0 and level % 1 + t % 1 == 0) then status = 67 end
  if t <= now + fill then
    hz, due, y = h, d, t
    if t > now then at = t end -- mutant: level-ahead-of-clock
    local m1, m2, m3 = at - t, a, b
    -- What would leak more than there is is not worked out exactly.
    if m1 / m3 * m2 > level + 1048576 then x = 0
    else
      --@include muldiv.muldiv
      if q < level then x = level - q end
    end
  elseif z > 0 then z = 1 -- a level of before the clock went back has left; mutant: given-back-since-step
  end
end
-- Rounded up to whole units.
used = x + 32767
used = (used - used % 32768) / 32768

--@section since
-- Where a reservation and its settlement leave the level: at its instant, until 2048
-- fractions have leaked. since and leaked are now and 0 before.
if x > 0 and (at - y) / b * a < 4096 then
  local m1, m2, m3 = at - y, a, b
  --@include muldiv.muldiv
  if q < 2048 then since, leaked = y, q end -- mutant: lua-reserve-moves-instant
end

--@section take
-- Of a Reserve x is the level at y by now, as kept has left it.
local since = op == 6 and y or at
x = x + taken * 32768
local ends, spare = at + fill, fill
if x / a * b > fill then ends = at + math.ceil(x / a * b) end -- mutant: debt-lives
--@include expiry.horizon
if z == 0 then fresh = pack('<BI4I4dd', 3, hz, due, x, since)
else fresh = pack('<BI4I4dddd', 3, hz, due, x, since, z, sum) end -- mutant: given-back-kept

--@section denied
-- A denied take counts nothing. But the level that denies it must live for as
-- long as it counts by this take's numbers: those that stored it may be faster.
local ends = at + math.max(fill, math.ceil(x / a * b))
if had > 0 and ends > hz * 1000000 then
  hz = math.min(math.ceil((ends + fill) / 1000000), marks)
  if hz > longer then longer = hz end
  fresh = string.sub(v, 1, 1) .. pack('<I4', hz) .. string.sub(v, 6) .. (z > 0 and pack('<dd', z, sum) or '')
end

--@section kept
-- With what was given back before, so that a settle finds what was since.
local since, leaked = at, 0
if taken > 0 then
  --@include tokenbucket.since
  if z == 0 then z, sum = since, 0 end
  x, y, charged = x + leaked, since, since
  kept = x + taken * 32768 + sum
end

--@section giveback
-- At most the level just after the charge, less what has leaked and what others have
-- given back since: what left the level in these ways would, without the charge, have
-- left nothing. What was not counted since the charge, or by an earlier release, gives
-- nothing back; nor does an earlier level.
local left = z > 0 and kept - sum or 0
if left > 0 and z <= charged and charged <= y then -- mutant: lua-give-back-of-earlier-level
  local m1, m2, m3 = at - charged, a, b
  if m1 / m3 * m2 > left + 1048576 then left = 0
  else
    --@include muldiv.muldiv
    left = left - q -- mutant: lua-give-back-leaked
  end
  local less, since, leaked = math.min(back * 32768, left, x), at, 0
  if less > 0 then
    if less < left then
      --@include tokenbucket.since
    end
    sum = sum + less
    if sum > 4503599627370496 then z, sum, since, leaked = at, 0, at, 0 end
    fresh = pack('<BI4I4dddd', 3, hz, due, x + leaked - less, since, z, sum)
  end
end
