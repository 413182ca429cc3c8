#!/bin/bash
# Starts the broker of deploy/compose/secured.yaml. Its users are made when its disk is formatted, before any client can connect;
# later ones by kafka-configs.sh.
set -euo pipefail
file=/mnt/shared/config/server.properties
cat /etc/fallow/kafka/server.properties /etc/fallow/kafka/secured.properties >"$file"
echo "advertised.listeners=INSIDE://kafka:9092,OUTSIDE://127.0.0.1:$OUTSIDE_PORT,OWN://127.0.0.1:9094" >>"$file"
users=()
for path in /etc/kafka/secrets/users/*; do
    users+=(--add-scram "SCRAM-SHA-512=[name=$(basename "$path"),password=$(<"$path")]")
done
# Its output holds the salted keys of the users.
/opt/kafka/bin/kafka-storage.sh format --ignore-formatted -t "$CLUSTER_ID" -c "$file" "${users[@]}" >/dev/null
exec /etc/kafka/docker/run
