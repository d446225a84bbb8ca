#!/bin/sh
# A data plane that is a command, as `routes.sh`, with two habits to try an agent with: on a gateway its `apply` advertises
# nothing while the file `no-routes` is on the machine, and doesn't come to its end while the file `slow` is there.
question=$(cat)
case $question in
*'"action":"plan"'*'"pool":null'*)
    echo '{"plan": {}}' ;;
*'"action":"plan"'*)
    echo '{"plan": {"file": "run/gateway"}}' ;;
*'"action":"apply"'*'"pool":null'*)
    echo '{"routes": {}}' ;;
*'"action":"apply"'*)
    mkdir -p "$MACHINE/run" && echo up >"$MACHINE/run/gateway" || exit 1
    if [ -e "$MACHINE/slow" ]; then
        echo begun >"$MACHINE/run/begun"
        sleep 3
        echo late >"$MACHINE/run/gateway"
        echo ended >"$MACHINE/run/ended"
    fi
    if [ -e "$MACHINE/no-routes" ]; then
        echo '{"routes": {}}'
    else
        echo '{"routes": {"10.244.1.0/24": {"type": "NodeCidr"}, "192.168.40.0/24": {"type": "RoutedCidr"}}}'
    fi ;;
*'"action":"teardown"'*'"file":"run/gateway"'*)
    rm -f "$MACHINE/run/gateway"
    echo '{}' ;;
*)
    echo '{}' ;;
esac
