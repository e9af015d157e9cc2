#!/bin/sh
# One vLLM server on the CPU, with kvengine.   sh engine.sh VLLM_PYTHON MODEL PORT [vLLM's own flags]
set -eu
python=$1 model=$2 port=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../../.."                # kvengine, which is not installed there
export KVENGINE_CONFIG_FILE="$here/offload.yaml"
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_CI_ENV=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_NO_USAGE_STATS=1
exec "$(dirname "$python")/vllm" serve "$model" --served-model-name random-llama --port "$port" \
  --dtype float32 --enforce-eager --block-size 32 --max-model-len 8192 --num-gpu-blocks-override 260 \
  --kv-transfer-config '{"kv_connector": "KVEngineConnector", "kv_connector_module_path": "kvengine.connector",
    "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}' "$@"
