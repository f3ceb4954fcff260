# The picker's image: the packages of image/requirements.lock, the picker, and nothing that builds or installs.
#
#     docker buildx build --platform linux/amd64,linux/arm64 --build-arg REVISION=$(git rev-parse HEAD) \
#       --sbom=true --provenance=true --tag registry.example.com/replicated-endpoint-picker:0.1.0 --push .
#
# The Python is the one that the tests run on. Pin BASE by digest where images must be the same bit by bit.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY image image
COPY picker picker
COPY stateplane stateplane
COPY discovery discovery
COPY chaos chaos
RUN image/install.sh python3 /opt/picker

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="replicated-endpoint-picker" \
      org.opencontainers.image.description="An endpoint picker whose replicas decide like one" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/picker /opt/picker
ENV PATH=/opt/picker/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
STOPSIGNAL SIGTERM
EXPOSE 9002 9003 9090 9092
ENTRYPOINT ["picker"]
CMD ["serve"]
