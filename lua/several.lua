-- A section of groups of several policies, each decided together. What the
-- one-policy path keeps in locals is kept in one table a policy.

--@section section
for _ = 1, groups do
  local states, status, runs, met, bad = {}, 0, all, ''
  pos = from
  local key, hashed, kinds, logs, parts, small = keys[k], nil, {}, {}, 0, 0
  for p = 1, policies do
    kinds[p] = string.byte(blob, pos + 41 * (p - 1))
    if kinds[p] ~= 5 then small = small + 1 end
  end
  local has, own = small > 0, 4294967295 - small
  if has then
    k, parts = k + 1, 1
    if op ~= 5 then hashed = try('HMGET', key, unpack(args, names + 1, names + policies)) end
    if hashed and hashed.err then
      local e, what = hashed, 'HMGET'
      --@include each.fails
      hashed = {}
    end
  end
  for p = 1, policies do
    if kinds[p] == 5 then logs[p] = keys[k]; k, parts = k + 1, parts + 1 end
  end
  if op == 5 then
    pos = pos + 41 * policies
    -- Nothing goes unless all may: a log that is none is met before the hash is
    -- written.
    for p = 1, policies do
      local e, what
      if logs[p] then
        e, what = try('ZCARD', logs[p]), 'ZCARD'
        if type(e) ~= 'table' then e, what = nil, not may('UNLINK', logs[p]) and 'UNLINK' end
      end
      if what then
        --@include each.fails
      end
    end
    local e, what = has and status == 0 and try('HDEL', key, unpack(args, names + 1, names + policies)), 'HDEL'
    if type(e) == 'table' then
      --@include each.fails
    end
    for p = 1, policies do
      if logs[p] and status == 0 then try('UNLINK', logs[p]) end -- mutant: refused-reset-keeps-log
    end
    wrote, met = true, '\0'
  else
    for p = 1, policies do
      local kind, limit, period, a, b, fill
      kind, limit, period, a, b, fill, pos = parse('<Bddddd', blob, pos)
      local hz, due, at, x, y, z, used = 0, 0, now, 0, 0, 0, 0
      local ahead, sum, log, v = false, 0, logs[p], hashed and hashed[p]
      local cost = least
      --@include each.range
      --@include each.view
      if kind > 3 then met = met .. pack('<Bdd', 1, used, x) else met = met .. (v or '\0') end
      states[p] = {kind, limit, period, a, b, fill, hz, due, at, x, y, z, used, used, ahead, sum, log, v, 0}
    end
    for run = 1, runs do
      local count = parse('<I4', blob, pos)
      local pass, costs = count, pos + 4
      pos = costs
      for p = 1, policies do
        local s, cost = states[p]
        cost, pos = parse('<d', blob, pos)
        if not (cost >= least and cost <= s[2] and cost % 1 == 0) then status, cost = 82, 1 end
        if s[13] + (op == 1 and cost * pass or cost) > s[2] then pass = math.max(0, math.floor((s[2] - s[13]) / cost)) end
        s[19] = cost
      end
      for p = 1, policies do
        local s = states[p]
        local kind, limit, cost = s[1], s[2], s[19]
        if op == 1 then s[13] = s[13] + pass * cost end
        local need = s[13] + cost - limit
        if pass < count and kind > 3 and need > 0 and status == 0 then
          local leaves
          local period, a, b, at, x, y, z, had, sum, log, v = s[3], s[4], s[5], s[9], s[10], s[11], s[12], s[14], s[16], s[17], s[18]
          --@include each.release
          met = met .. pack('<d', leaves or 0)
        end
      end
    end
    if op == 1 and status == 0 then
      local fields, longer, sweep, passed = {}, 0, false, states[1][13] > states[1][14]
      for p = 1, policies do
        local s = states[p]
        local kind, period, a, b, fill = s[1], s[3], s[4], s[5], s[6]
        local hz, due, at, x, y, z, used, had, v = s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[18]
        local taken = used - had
        local stores = kind < 5 and (passed or kind == 3 and had > 0 and at + fill > hz * 1000000)
        if not stores then
        elseif passed then
          --@include each.take
        else
          --@include each.keep
        end
        if stores then
          fields[#fields + 1] = args[names + p]
          fields[#fields + 1] = v
        end
      end
      --@include each.lasts
      if passed and parts > 1 and status == 0 then
        -- Several keys are written: no right may be found missing between them.
        local e, what
        if has and not may('HSET', key, 'f', 'v') then what = 'HSET' end
        for _, log in pairs(logs) do
          if not may('ZADD', log, 1, 'm') then what = 'ZADD' elseif not may('PEXPIRE', log, 1) then what = 'PEXPIRE'
          elseif not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK' end
        end
        if what then
          --@include each.fails
        end
      end
      for p = 1, policies do
        local s = states[p]
        if passed and status == 0 and logs[p] then
          local period, at, y, ahead, sum, log, taken = s[3], s[9], s[11], s[15], s[16], s[17], s[13] - s[14]
          --@include slidinglog.take
        end
      end
      if fields[1] and status == 0 then
        local e = try('HSET', key, unpack(fields))
        --@include each.stored
      end
    end
  end
  --@include each.answer
end
