#!/bin/sh
# `routes.sh` with two habits to try an agent with: on a gateway its `apply` advertises nothing while the file `no-routes`
# is on the machine, and doesn't come to its end for a while when the file `slow` is there.
question=$(cat)
answer=$(printf '%s' "$question" | "${0%/*}/routes.sh") || exit
case $question in
*'"action":"apply"'*'"pool":null'*)
    ;;
*'"action":"apply"'*)
    if [ -e "$MACHINE/slow" ]; then
        sleep 3
        echo late >"$MACHINE/run/gateway"
        echo ended >"$MACHINE/run/ended"
    fi
    if [ -e "$MACHINE/no-routes" ]; then
        answer='{"routes": {}}'
    fi ;;
esac
echo "$answer"
