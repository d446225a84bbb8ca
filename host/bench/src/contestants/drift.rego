package moorline.drift

import rego.v1

adopted := input.seen.adopted
observed := input.seen.observed
projected := input.seen.projected

verdict := {"drifted": sprintf("the Node has no assignment any more; its Site was \"%s\"", [adopted.site])} if {
	projected == null
} else := {"drifted": sprintf("Node UID changed from \"%s\" to \"%s\"", [adopted["node-uid"], observed.uid])} if {
	observed.uid != adopted["node-uid"]
} else := {"drifted": sprintf("Site changed from \"%s\" to \"%s\"", [adopted.site, projected.site])} if {
	projected.site != adopted.site
} else := {"same": "Node UID, Site and GatewayPool are as adopted"} if {
	projected.pool == adopted.pool
} else := {"same": sprintf("%s; tolerated during maintenance (label %s)", [change, input.label])} if {
	some entry in observed.labels
	entry[0] == input.label
} else := {"drifted": change}

change := sprintf("GatewayPool changed from %s to %s", [name(adopted.pool), name(projected.pool)])

name(pool) := "none" if pool == null
name(pool) := sprintf("\"%s\"", [pool]) if pool != null
