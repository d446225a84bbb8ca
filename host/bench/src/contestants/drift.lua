-- The decision of examples/policies/rust-drift.
local function name(pool)
  if pool == null then return "none" end
  return '"' .. pool .. '"'
end

function assess(seen, label)
  local adopted, observed, projected = seen.adopted, seen.observed, seen.projected
  if projected == null then
    return {drifted = 'the Node has no assignment any more; its Site was "' .. adopted.site .. '"'}
  end
  if observed.uid ~= adopted["node-uid"] then
    return {drifted = 'Node UID changed from "' .. adopted["node-uid"] .. '" to "' .. observed.uid .. '"'}
  end
  if projected.site ~= adopted.site then
    return {drifted = 'Site changed from "' .. adopted.site .. '" to "' .. projected.site .. '"'}
  end
  if projected.pool == adopted.pool then
    return {same = "Node UID, Site and GatewayPool are as adopted"}
  end
  local change = "GatewayPool changed from " .. name(adopted.pool) .. " to " .. name(projected.pool)
  for _, entry in ipairs(observed.labels) do
    if entry[1] == label then
      return {same = change .. "; tolerated during maintenance (label " .. label .. ")"}
    end
  end
  return {drifted = change}
end
