# One image for everything of the stack but PostgreSQL. TORCH_INDEX has a torch for other devices than the plain one.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS built
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/sweeper
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY constraints.txt ./
# the largest package first: this layer stays when the code changes
RUN /opt/sweeper/bin/pip install --constraint constraints.txt ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} torch
COPY pyproject.toml README.md LICENSE ./
COPY sweeper sweeper
COPY dashboards dashboards
COPY models models
RUN /opt/sweeper/bin/pip install --constraint constraints.txt ".[stack,mcp]"

FROM python:${PYTHON}
# the service draws pictures with it
RUN apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 sweeper && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin sweeper \
    && install --directory --owner=sweeper --group=sweeper /sweeps /artifacts /data /tokens
COPY --from=built /opt/sweeper /opt/sweeper
ENV PATH=/opt/sweeper/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /sweeps
