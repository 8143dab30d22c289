"""A PyTorch program that trains on the CPU, asks for a GPU, and ends with the error for none."""

import sys

import torch

torch.manual_seed(0)
print(torch.__version__, torch.cuda.is_available(), torch.cuda.device_count())
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
try:
    torch.ones(3, device="cuda")
except RuntimeError as error:
    print(error)
    sys.exit(3)
