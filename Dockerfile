# One image for every service and for the `fallow` command: what a container does is its command.
#   docker build -t fallow .
#   docker run --rm fallow fallow --help

FROM python:3.11-slim-bookworm AS build
WORKDIR /app
# The requirements first: they change seldom, so their layer stays in the cache.
COPY requirements-run.lock .
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore --require-hashes \
        --prefix=/install --no-compile -r requirements-run.lock
COPY fallow fallow
COPY services services
COPY shared shared
COPY deploy deploy
# Compiled here, since the containers cannot write; and not checked against times, which copying need not keep.
RUN python -m compileall -q --invalidation-mode unchecked-hash /install/lib fallow services shared \
    && printf '#!/bin/sh\nexec python -m fallow.cli "$@"\n' >/install/bin/fallow && chmod 755 /install/bin/fallow \
    && mkdir -p /data && chmod -R a+rX /app /install

FROM python:3.11-slim-bookworm
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app
WORKDIR /app
COPY --from=build /install /usr/local
COPY --from=build /app /app
# A new volume takes the owner of the folder on which it is mounted: only the diaries are ever written.
COPY --from=build --chown=10001:10001 /data /var/lib/fallow
USER 10001:10001
CMD ["fallow", "--help"]
