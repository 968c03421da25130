# The reader and the command line on a CPU:
#   docker build -t protopyramid .
#   docker run --rm -p 8000:8000 protopyramid serve phantoms --host 0.0.0.0 --port 8000
#   docker run --rm -v "$PWD:/work" protopyramid explain phantoms lesion.png --out why
# TORCH_INDEX: the address of PyTorch's index of CPU builds; without it, the default build is installed.
FROM python:3.11-slim
ARG TORCH_INDEX=""
WORKDIR /opt/protopyramid
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN if [ -n "$TORCH_INDEX" ]; then pip install --no-cache-dir --index-url "$TORCH_INDEX" -c constraints.txt torch; fi \
    && pip install --no-cache-dir -c constraints.txt '.[dicom,reader,export]' \
    && useradd --create-home reader
USER reader
WORKDIR /work
ENTRYPOINT ["protopyramid"]
CMD ["--help"]
