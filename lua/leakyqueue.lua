-- The twin of algo/rule/leakyqueue.go: TokenBucket's level, of which what leaks within the longest
-- delay does not count. period is that delay. used is what will count after it, and may be
-- below 0. A count is a level that no TokenBucket has, so what is kept is the same.

--@section range
if not (a >= 1 and a <= 2251799813685248 and b >= 1 and b <= 34560000000000 and fill >= 1 and fill <= 4503599627370496 and a / b * period <= 4503599627370496 and a % 1 + b % 1 + fill % 1 == 0) then status = OUT_OF_RANGE end

--@section view
--@include tokenbucket.view
local m1, m2, m3 = period, a, b
--@include muldiv.muldiv
used = x - q + 32767
used = (used - used % 32768) / 32768

--@section take
--@include tokenbucket.take

--@section denied
--@include tokenbucket.denied

--@section kept
--@include tokenbucket.kept

--@section giveback
-- What was charged since has a delay that counts on what is before it.
--mutant:lua-queue-gives-back-last
if sum == kept then
  --@include tokenbucket.giveback
end
