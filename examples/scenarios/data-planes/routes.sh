#!/bin/sh
# A data plane that is a command: it reads one JSON question and writes one JSON answer. On a gateway it leaves one file
# on the machine and advertises two routes; on a worker it does nothing. The plan is what `teardown` is asked to undo.
question=$(cat)
case $question in
*'"action":"plan"'*'"pool":null'*)
    echo '{"plan": {}}' ;;
*'"action":"plan"'*)
    echo '{"plan": {"file": "run/gateway"}}' ;;
*'"action":"apply"'*'"pool":null'*)
    echo '{}' ;;
*'"action":"apply"'*)
    mkdir -p "$MACHINE/run" && echo up >"$MACHINE/run/gateway" || exit 1
    echo '{"routes": {"10.244.1.0/24": {"type": "NodeCidr"}, "192.168.40.0/24": {"type": "RoutedCidr"}}}' ;;
*'"action":"teardown"'*'"file":"run/gateway"'*)
    rm -f "$MACHINE/run/gateway"
    echo '{}' ;;
*)
    echo '{}' ;;
esac
