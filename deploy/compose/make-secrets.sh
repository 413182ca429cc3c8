#!/bin/bash
# Makes what deploy/compose/secured.yaml needs, in the folder `secrets` or FALLOW_SECRETS: a password for each user of Kafka and
# Redis, a CA and the broker's certificate, Redis's users. Needs openssl and the image fallow:dev. What is there stays as it is.
#
#   docker compose build init && deploy/compose/make-secrets.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# Containers read these files as users of their own, and only what is mounted into them; on this machine no other user can read them.
folder=${FALLOW_SECRETS:-./secrets}
mkdir -p "$folder" && chmod 700 "$folder" && cd "$folder"
umask 022

password() { # FILE: a new password, unless it is there
    mkdir -p "$(dirname "$1")"
    [ -s "$1" ] || openssl rand -hex 24 | tr -d '\n' >"$1"
}

user() { # NAME: its password for the broker, and the same in the folder that its container sees
    password "kafka/users/$1"
    mkdir -p "$1"
    cp "kafka/users/$1" "$1/fallow_kafka_password"
    cp ca.pem "$1/ca.pem"
}

redis() { # CONTAINER USER: the URL of this user of Redis in the folder of that container
    password "redis/$2"
    printf %s "redis://$2:$(<"redis/$2")@valkey:6379/0" >"$1/fallow_redis"
}

certificates() { # a CA of this cell alone, and a key store for the broker; the CA's key is not kept
    mkdir -p kafka
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=Fallow CA" -keyout ca.key -out ca.pem \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
    openssl req -newkey rsa:2048 -nodes -subj "/CN=kafka" -keyout kafka.key -out kafka.csr
    openssl x509 -req -in kafka.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -out kafka.crt \
        -extfile <(printf 'subjectAltName=DNS:kafka,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n')
    cat kafka.key kafka.crt ca.pem >kafka/kafka.pem
    cp ca.pem kafka/ca.pem
    rm kafka.key kafka.csr kafka.crt ca.key ./*.srl
}

[ -s kafka/kafka.pem ] || certificates 2>/dev/null
for name in admin admission queueing placement executor projector metrics operator; do user "$name"; done
# The broker proves itself to itself, and its controller, which knows no SCRAM.
for name in broker controller; do password "kafka/own/$name"; done
cp kafka/own/broker kafka/users/broker
password redis/admin
redis admin loader
redis projector projector
redis operator reader
mkdir -p valkey
docker run --rm --volume "$PWD/redis:/passwords:ro" fallow:dev fallow view users --passwords /passwords >valkey/users.acl.new
mv valkey/users.acl.new valkey/users.acl
echo "secrets are in $PWD"
