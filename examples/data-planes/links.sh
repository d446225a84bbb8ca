#!/bin/sh
# A data plane that is a command: for each Site a bridge, a route and a rule, all with the marks that the agent gives.
# What it lists as `network` the agent records before it is there, and removes when the Node leaves the Site: `teardown` has
# nothing to do. Needs `ip` and the capability NET_ADMIN.
set -eu
question=$(cat)
value() { printf '%s' "$question" | sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p"; }
action=$(value action)
[ "$action" != teardown ] || exit 0

link=moor-$(printf '%s' "$question" | sed -n 's/.*"assignment":{[^}]*"site":"\([^"]*\)".*/\1/p')
case $action in
plan)
    echo "{\"plan\": {\"network\": {
        \"links\": [{\"name\": \"$link\"}],
        \"routes\": [{\"destination\": \"10.99.0.0/16\", \"table\": 99, \"device\": \"$link\"}],
        \"rules\": [{\"family\": \"ipv4\", \"priority\": 999, \"table\": 99, \"source\": \"10.98.0.0/16\"}]
    }}}" ;;
apply)
    protocol=$(value routeProtocol)
    ip link show "$link" >/dev/null 2>&1 || ip link add "$link" type bridge
    ip link set "$link" alias "$(value linkAlias)" up
    ip route replace 10.99.0.0/16 dev "$link" table 99 protocol "$protocol"
    ip rule show priority 999 | grep -q . ||
        ip rule add priority 999 from 10.98.0.0/16 lookup 99 protocol "$protocol"
    echo '{}' ;;
esac
