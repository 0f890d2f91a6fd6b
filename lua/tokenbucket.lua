-- The twin of algo/tokenbucket.go. x is the level at the instant at, in 2^-20
-- of a unit; a / b is how many of those leak a microsecond; fill is how long a
-- full bucket takes to be as new.
-- Kept: version, horizon, due, level, instant.

--@section view
if not v then
elseif #v < 25 then status = 67
else
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, d, level, t = parse('<BI4I4dd', v)
  if version ~= 2 or not (t <= 9007199254740992 and level >= 0 and level <= 2251799813685248 and t >= 0 and level % 1 + t % 1 == 0) then status = 67 end
  if t <= now + fill then
    hz, due = h, d
    if t > now then at = t end -- mutant: level-ahead-of-clock
    local m1, m2, m3 = at - t, a, b
    -- What would leak more than there is is not worked out exactly.
    if m1 / m3 * m2 > level + 1048576 then x = 0
    else
      --@include whole.muldiv
      if q < level then x = level - q end
    end
  end
end
-- Rounded up to whole units.
used = x + 1048575
used = (used - used % 1048576) / 1048576

--@section take
x = x + taken * 1048576
local ends = at + fill
--@include each.horizon
v = pack('<BI4I4dd', 2, hz, due, x, at)

--@section quick
-- Most takes, in fewer steps than view and take: a level behind the clock that
-- leaves room, in a key that lives long enough and has no sweep due. Then fresh
-- is the value to store. Every other take goes through view and take.
local version, h, due, level, t = parse('<BI4I4dd', v)
local q = (now - t) * a
if version == 2 and h >= edge and (due == own or due < marks and due * 1000000 > now) and q >= 0 and q < 4503599627370496 -- mutant: quick-value
  and level >= 0 and level <= 2251799813685248 and t >= 0 and level % 1 + t % 1 == 0 then
  q = q / b
  q = q - q % 1
  if q < level then level = level - q else level = 0 end -- mutant: quick-empties
  if level <= room then fresh = pack('<BI4I4dd', 2, h, due, level + add, now) end -- mutant: quick-passes
end
