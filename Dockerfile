# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/cockpithat
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY prompts prompts
COPY schemas schemas
COPY cockpithat cockpithat
COPY stream stream
RUN /opt/cockpithat/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.12-slim
LABEL org.opencontainers.image.title="CockpitHAT Stream" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin cockpithat
COPY --from=build /opt/cockpithat /opt/cockpithat
ENV PATH=/opt/cockpithat/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    COCKPITHAT_HEALTH__HOST=0.0.0.0 \
    COCKPITHAT_HEALTH__PORT=8484
USER 10001:10001
EXPOSE 8484
# Alive, not ready: a container that waits for its topics is not to be restarted.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['COCKPITHAT_HEALTH__PORT'] + '/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["cockpithat"]
CMD ["worker"]
