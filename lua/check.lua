-- What a request may ask for.

--@section range
-- Checked where it was made, and here again. A client of another release, or
-- none of ours, must not store numbers without a meaning. Fractions are
-- looked for one by one: beside an instant a sum would swallow small ones. NaN
-- and infinity have no whole part either.
local greatest = 68719476736
if limit > greatest then
  local most = greatest
  --@choose most
  end
  greatest = most
end
--mutant:ranges-in-script
if not (cost >= least and cost <= limit and limit <= greatest and period >= 1000 and period <= 34560000000000 and limit % 1 + period % 1 + cost % 1 == 0) then status = OUT_OF_RANGE
else
  --@choose range
  end
end
