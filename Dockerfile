# docker build -t tessera . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/out" tessera generate shapes --class "red circle" -o /out/circle.png
FROM debian:12-slim AS build
COPY . /tessera
WORKDIR /tessera
RUN ./scripts/package && mkdir /packages && cp build/package/tessera_*.deb /packages/

FROM debian:12-slim
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && apt-get install -y --no-install-recommends /packages/*.deb && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --no-log-init tessera
USER 10001
WORKDIR /out
ENTRYPOINT ["tessera"]
CMD ["--help"]
