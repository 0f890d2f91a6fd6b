-- The twin of algo/rule/tokenbucket.go. x is the level at the instant at, in 2^-15
-- of a unit; a / b is how many of those leak a microsecond. fill is how long a
-- full bucket takes to be unused.
-- Kept: version, horizon, due, level, instant. Once a Reserve has charged it, two
-- numbers behind: since when charges are summed, and their sum in units. A take that would
-- pass 2^52 drops them. y is the level's instant, z and sum are these two; z is 0 where they
-- are not there. A lease keeps z in place of its charge's instant, and the sum just after
-- the charge.

--@section range
if not (a >= 1 and a <= 2251799813685248 and b >= 1 and b <= period and fill >= 1 and fill <= 4503599627370496 and a % 1 + b % 1 + fill % 1 == 0) then status = OUT_OF_RANGE end

--@section view
if not v then
elseif #v < 25 then status = CORRUPT
else
  if #v > 40 then
    z, sum = parse('<dd', v, 26)
    if not (z >= 0 and z <= 9007199254740992 and sum >= 0 and sum <= 4503599627370496 and z % 1 + sum % 1 == 0) then status = CORRUPT end
  end
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, d, level, t = parse('<BI4I4dd', v)
  if version ~= 1 or not (t <= 9007199254740992 and level >= 0 and level <= 9007199254740992 and t >= 0 and level % 1 + t % 1 == 0) then status = CORRUPT end
  if t <= now + fill then
    hz, due, y = h, d, t
    --mutant:level-ahead-of-clock
    if t > now then at = t end
    local m1, m2, m3 = at - t, a, b
    -- A leak of more than the level is not worked out exactly.
    if m1 / m3 * m2 > level + 1048576 then x = 0
    else
      --@include muldiv.muldiv
      if q < level then x = level - q end
    end
  end
end
-- Rounded up to whole units.
used = x + 32767
used = (used - used % 32768) / 32768

--@section since
-- Where a reservation and its settlement leave the level. That is at its instant, until
-- 2048 fractions have leaked, or a third of what is left by now. since and leaked are
-- now and 0 before.
if least > 0 and (at - y) / b * a < 4096 then
  local m1, m2, m3 = at - y, a, b
  --@include muldiv.muldiv
  --mutant:lua-reserve-moves-instant
  if q < 2048 and least >= 2 * q + 2 then since, leaked = y, q end
end

--@section take
-- Of a Reserve x is the level at y by now, as kept has left it.
local since = op == RESERVE and y or at
x = x + taken * 32768
local ends, spare = at + fill, fill
--mutant:debt-lives
if x / a * b > fill then ends = at + math.ceil(x / a * b) end
--@include expiry.horizon
--mutant:charges-summed
if z > 0 then sum = sum + taken end
--mutant:sum-too-large
if z == 0 or sum > 4503599627370496 then fresh = pack('<BI4I4dd', 1, hz, due, x, since)
else fresh = pack('<BI4I4dddd', 1, hz, due, x, since, z, sum) end

--@section denied
-- A denied take counts nothing. But the level that denies it must live for as
-- long as it counts by this take's numbers: those that stored it may be faster.
local ends = at + math.max(fill, math.ceil(x / a * b))
if x > 0 and ends > hz * 1000000 then
  hz = math.min(math.ceil((ends + fill) / 1000000), marks)
  if hz > longer then longer = hz end
  fresh = string.sub(v, 1, 1) .. pack('<I4', hz) .. string.sub(v, 6) .. (z > 0 and pack('<dd', z, sum) or '')
end

--@section kept
-- With the sum of all charges, so that a settle finds what was charged since.
local since, leaked, least = at, 0, x
if taken > 0 then
  --@include tokenbucket.since
  if z == 0 then z, sum = at, 0 end
  x, y = x + leaked, since
  charged, kept = z, sum + taken
end

--@section giveback
-- In the level stays at least what was charged since: what left it meanwhile would,
-- without the charge, have left nothing. A lease of before the sum began gives nothing back.
--mutant:lua-give-back-of-earlier-sum
if z == charged and (z > 0 or op == RETURN) then
  --mutant:lua-give-back-twice
  local left, since, leaked = x - math.max(0, sum - kept) * 32768, at, 0
  local less = math.min(back * 32768, left)
  if less > 0 then
    local least = x - less
    if less < left then
      --@include tokenbucket.since
    end
    fresh = pack('<BI4I4dd', 1, hz, due, x + leaked - less, since) .. (z > 0 and pack('<dd', z, sum) or '')
  end
end

--@section returned
charged = z
--@include tokenbucket.giveback

--@section unmoved
-- A level that is written loses a part of a unit.
fresh = plain

--@section outlives
-- Lent units may be charged at the end of their loans, beside a debt.
ends = last + fill + math.ceil((x + (taken + units) * 32768) / a * b)
