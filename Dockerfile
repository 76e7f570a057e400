# goalgrid in a container: docker build --tag goalgrid .
# On GPUs:                 docker build --tag goalgrid:cuda --build-arg TORCH=cu126 .
# Train on this machine:   docker run --rm --shm-size=2g --volume "$PWD:/work" goalgrid run demo
# TORCH is the folder of torch's wheels below https://download.pytorch.org/whl: cpu, cu126, cu128.
# A release names the base by its digest (RELEASING.md): python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim

FROM ${BASE} AS builder
ARG TORCH=cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/goalgrid/bin:$PATH
WORKDIR /source
# The requirements change seldom: their layers stand before the sources. KubeRay starts jobs through the dashboard of
# ray[default], and looks after pods with wget.
COPY pyproject.toml constraints.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/goalgrid \
    && pip install --constraint constraints.txt --extra-index-url "https://download.pytorch.org/whl/${TORCH}" torch
RUN --mount=type=cache,target=/root/.cache/pip \
    python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; e = p['optional-dependencies']; \
print(*p['dependencies'], *e['pretrained'], *e['ncr'], *e['nltk'], sep='\n')" > requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt "ray[default]"
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip pip install --no-deps .

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 goalgrid && mkdir /work && chown goalgrid /work
COPY --from=builder /opt/goalgrid /opt/goalgrid
ENV PATH=/opt/goalgrid/bin:$PATH RAY_USAGE_STATS_ENABLED=0
USER 1000
WORKDIR /work
ENTRYPOINT ["goalgrid"]
CMD ["--help"]
