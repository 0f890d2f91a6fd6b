-- A section of groups of several policies, each decided together. What the
-- one-policy path keeps in locals is kept in one table a policy.

--@section section
for _ = 1, groups do
  local states, status, runs, met, ms, bad = {}, 0, all, '', 0
  pos = from
  local key, hashed, kinds, logs, parts, small = keys[k], nil, {}, {}, 0, 0
  for p = 1, policies do
    kinds[p] = string.byte(blob, pos + 41 * (p - 1))
    if kinds[p] < 48 then small = small + 1 end
  end
  local has, own = small > 0, 4294967295 - small
  if has then
    k, parts = k + 1, 1
    if op ~= 5 then hashed = try('HMGET', key, unpack(args, names + 1, names + policies)) end
    if hashed and hashed.err then
      local e, what = hashed, 'HMGET'
      --@include kinds.fails
      hashed = {}
    end
  end
  for p = 1, policies do
    if kinds[p] > 47 then logs[p] = keys[k]; k, parts = k + 1, parts + 1 end
  end
  if op == 5 then
    pos = pos + 41 * policies
    -- Nothing goes unless all may: a log that is none is met before the hash is
    -- written.
    for p = 1, policies do
      local kind, log, e, what = kinds[p], logs[p]
      if log then
        --@choose reset
        end
        if type(e) ~= 'table' then e, what = nil, not may('UNLINK', log) and 'UNLINK' end
      end
      if what then
        --@include kinds.fails
      end
    end
    local e, what = has and status == 0 and try('HDEL', key, unpack(args, names + 1, names + policies)), 'HDEL'
    if type(e) == 'table' then
      --@include kinds.fails
    end
    for p = 1, policies do
      if logs[p] and status == 0 then try('UNLINK', logs[p]) end -- mutant: refused-reset-keeps-log
    end
    wrote, met = true, '\0'
  else
    for p = 1, policies do
      local kind, limit, period, a, b, fill
      kind, limit, period, a, b, fill, pos = parse('<Bddddd', blob, pos)
      local hz, due, at, x, y, z, used, cost, least = 0, 0, now, 0, 0, 0, 0, 0, 0
      local ahead, sum, log, v = false, 0, logs[p], hashed and hashed[p]
      --@include kinds.range
      --@include kinds.view
      if kind > 31 then met = met .. pack('<Bdd', 1, used, x) else met = met .. (v or '\0') end
      states[p] = {kind, limit, period, a, b, fill, hz, due, at, x, y, z, used, used, ahead, sum, log, v, 0}
    end
    for run = 1, runs do
      local count = parse('<I4', blob, pos)
      local pass, total = count, 0
      pos = pos + 4
      for p = 1, policies do
        local s, cost = states[p]
        cost, pos = parse('<d', blob, pos)
        if not (cost >= 0 and cost <= s[2] and cost % 1 == 0) then status, cost = 82, 1 end
        if s[13] + (op == 1 and cost * pass or cost) > s[2] then pass = math.max(0, math.floor((s[2] - s[13]) / cost)) end
        s[19], total = cost, total + cost
      end
      if op == 1 and total == 0 then status = 82 end
      for p = 1, policies do
        local s = states[p]
        local kind, limit, cost = s[1], s[2], s[19]
        if op == 1 then s[13] = s[13] + pass * cost end
        local need = s[13] + cost - limit
        if pass < count and kind > 31 and need > 0 and status == 0 then
          local leaves
          local period, a, b, at, x, y, z, had, sum, log, v = s[3], s[4], s[5], s[9], s[10], s[11], s[12], s[14], s[16], s[17], s[18]
          --@include kinds.release
          met = met .. pack('<d', leaves or 0)
        end
      end
    end
    if op == 1 and status == 0 then
      local fields, longer, sweep, passed = {}, 0, false, false
      for p = 1, policies do passed = passed or states[p][13] > states[p][14] end
      for p = 1, policies do
        local s = states[p]
        local kind, period, a, b, fill = s[1], s[3], s[4], s[5], s[6]
        local hz, due, at, x, y, z, used, had, v, fresh = s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[18]
        local taken = used - had
        if not logs[p] then
          --@include kinds.new
        end
        if fresh then
          fields[#fields + 1] = args[names + p]
          fields[#fields + 1] = fresh
        end
      end
      --@include expiry.lasts
      if passed and parts > 1 and status == 0 then
        -- Several keys are written: no right may be found missing between them.
        local e, what
        if has and not may('HSET', key, 'f', 'v') then what = 'HSET' end
        for p, log in pairs(logs) do
          local kind = kinds[p]
          --@choose rights
          end
        end
        if what then
          --@include kinds.fails
        end
      end
      for p = 1, policies do
        local s = states[p]
        local kind, period, at, y, ahead, sum, log, taken = s[1], s[3], s[9], s[11], s[15], s[16], s[17], s[13] - s[14]
        if taken > 0 and status == 0 and log then
          --@choose take
          end
        end
      end
      if fields[1] and status == 0 then
        local e = try('HSET', key, unpack(fields))
        --@include expiry.stored
      end
    end
  end
  --@include kinds.answer
end
