-- The twin of algo/tokenbucket.go. x is the level at the instant at, in 2^-15
-- of a unit; a / b is how many of those leak a microsecond; fill is how long a
-- full bucket takes to be unused.
-- Kept: version, horizon, due, level, instant.

--@section range
if not (a >= 1 and a <= 2251799813685248 and b >= 1 and b <= period and fill >= 1 and fill <= 4503599627370496 and a % 1 + b % 1 + fill % 1 == 0) then status = 82 end

--@section view
if not v then
elseif #v < 25 then status = 67
else
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, d, level, t = parse('<BI4I4dd', v)
  if version ~= 3 or not (t <= 9007199254740992 and level >= 0 and level <= 4503599627370496 and t >= 0 and level % 1 + t % 1 == 0) then status = 67 end
  if t <= now + fill then
    hz, due = h, d
    if t > now then at = t end -- mutant: level-ahead-of-clock
    local m1, m2, m3 = at - t, a, b
    -- What would leak more than there is is not worked out exactly.
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

--@section take
x = x + taken * 32768
local ends, spare = at + fill, fill
if x / a * b > fill then ends = at + math.ceil(x / a * b) end -- mutant: debt-lives
--@include expiry.horizon
fresh = pack('<BI4I4dd', 3, hz, due, x, at)

--@section denied
-- A denied take counts nothing. But the level that denies it must live for as
-- long as it counts by this take's numbers: those that stored it may be faster.
local ends = at + math.max(fill, math.ceil(x / a * b))
if had > 0 and ends > hz * 1000000 then
  hz = math.min(math.ceil((ends + fill) / 1000000), marks)
  if hz > longer then longer = hz end
  fresh = string.sub(v, 1, 1) .. pack('<I4', hz) .. string.sub(v, 6)
end

--@section kept
kept = x + taken * 32768

--@section giveback
-- At most the level just after the charge, less what has leaked since: what leaked
-- meanwhile would, without the charge, have leaked of nothing.
local m1, m2, m3 = math.max(0, at - charged), a, b
if m1 / m3 * m2 <= kept + 1048576 then
  --@include muldiv.muldiv
  local less = math.min(back * 32768, kept - q, x) -- mutant: lua-give-back-leaked
  if less > 0 then fresh = pack('<BI4I4dd', 3, hz, due, x - less, at) end
end
