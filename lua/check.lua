-- What a request may ask for.

--@section range
-- Checked where it was made, and here again: a client of another release, or
-- none of ours, must not store what nobody could have meant. Fractions are
-- looked for one by one: beside an instant a sum would swallow small ones. NaN
-- and infinity have no whole part either.
if not (cost >= least and cost <= limit and (limit <= 68719476736 or limit <= 999999999999999 and (kind == 17 or kind == 23)) and period >= 1000 and period <= 34560000000000 and limit % 1 + period % 1 + cost % 1 == 0) then status = 82 -- mutant: ranges-in-script
else
  --@choose range
  end
end
