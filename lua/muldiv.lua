-- The twin of algo/rule/muldiv.go.

--@section muldiv
-- q = floor(m1 * m2 / m3), exactly. Doubles hold whole numbers to 2^53. Where
-- the product stays below 2^52 the rounded quotient's floor is the floor (by
-- %, which costs a tenth of a call to math.floor).
-- Else by long division, six bits of m2 at a time: with m1 and m3 at most
-- 2^45 no step passes 2^52.
local q = m1 * m2
--mutant:long-division
if q < 4503599627370496 then
  q = q / m3
  q = q - q % 1
else
  local floor = math.floor
  local whole = floor(m1 / m3)
  m1 = m1 - whole * m3
  q = 0
  local rest, digits, scale = 0, m2, 281474976710656
  while scale >= 1 do
    local digit = floor(digits / scale)
    digits = digits - digit * scale
    rest = rest * 64 + m1 * digit
    local d = floor(rest / m3)
    q, rest, scale = q * 64 + d, rest - d * m3, scale / 64
  end
  q = q + whole * m2
end
