# The picker's image: `docker build --build-arg BASE=python:3.11-slim-bookworm@sha256:... .` (docs/image.md).
# A release gives the base with its digest, which only a registry knows; everything else is pinned here, with hashes.
# Nothing depends on the machine, so `docker buildx build --platform linux/amd64,linux/arm64` makes both.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /opt/source
COPY image/build-requirements.txt image/requirements.txt image/
RUN python -m venv /opt/build
RUN /opt/build/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --requirement image/build-requirements.txt
RUN python -m venv --without-pip /opt/tierwise
RUN /opt/build/bin/python -m pip --python /opt/tierwise/bin/python install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --no-compile --requirement image/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY manifests manifests
COPY scorers scorers
COPY kvengine kvengine
COPY epp epp
RUN /opt/build/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir /opt/wheel .
RUN /opt/build/bin/python -m pip --python /opt/tierwise/bin/python install --quiet --disable-pip-version-check --no-deps --no-index --no-compile --find-links /opt/wheel tierwise
# The file system is read-only later, and the times of files do not survive every copy of a layer.
RUN /opt/tierwise/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tierwise/lib

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tierwise" \
      org.opencontainers.image.description="An endpoint picker for LLM inference that knows which memory tier holds each prompt prefix" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/tierwise /opt/tierwise
ENV PATH=/opt/tierwise/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
# Any user will do: OpenShift chooses one of its own.
USER 65532:65532
EXPOSE 9002 9003 9090
ENTRYPOINT ["tierwise"]
CMD ["serve"]
