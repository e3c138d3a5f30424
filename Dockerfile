# The service of docs/service.md. Other models: docker build --build-arg EXTRAS=server,fast,openclip .
FROM python:3.11-slim
ARG EXTRAS=server,fast
WORKDIR /crg
COPY . .
RUN python -m pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" \
    && useradd --create-home --uid 10001 crg \
    && install --directory --owner crg --mode 700 /sessions
USER crg
WORKDIR /home/crg
VOLUME /sessions
EXPOSE 8000
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"]
# Others can reach it here, so it starts with a token in CRG_TOKEN only.
ENTRYPOINT ["crg"]
CMD ["serve", "--model", "mini", "--host", "0.0.0.0", "--port", "8000", "--data", "/sessions"]
